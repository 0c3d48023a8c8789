"""Action values: the network, its update, the offline double DQN, values fitted in imagination."""
