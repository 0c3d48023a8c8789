"""What any run needs: settings, folder, checkpoint, record, progress, statistics, the agent's five methods."""
