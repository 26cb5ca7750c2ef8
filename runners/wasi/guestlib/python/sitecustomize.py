"""Put this file and jail_fetch.py where Python finds modules (PYTHONPATH, or site-packages): then urllib works inside a jail by itself."""

import os

if "JAIL_FETCH_FD" in os.environ:  # a Python that fetches nothing does not load what fetching needs
    import jail_fetch  # noqa: F401
