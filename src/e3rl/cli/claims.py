"""`e3rl reproduce claims`."""

import json
from pathlib import Path


def claims(out: Path | None, as_json: bool) -> int:
    """What the paper says beside what was measured; with a folder, also as a page of the documentation."""
    from e3rl.reports.claims.table import judged, plain, write_page

    found = judged(Path("results"))
    page = None if out is None else str(write_page(out, found))
    if as_json:
        print(json.dumps({"claims": [one.as_dict() for one in found], "page": page}))
        return 0
    print(plain(found))
    if page is not None:
        print(f"page: {page}")
    return 0
