"""Makes urllib work inside a jail by itself, where this file and jail_fetch.py are found as modules (PYTHONPATH, or site-packages)."""

import os
import sys

CHANGED = "http.client", "urllib.request"


class Late:
    """Loads jail_fetch behind the first module that it changes: a program that fetches nothing does not wait for what fetching needs."""

    def find_spec(self, name, path=None, target=None):
        if name not in CHANGED:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = Followed(spec.loader)
                return spec
        return None


class Followed:
    """A loader behind whose module jail_fetch is loaded."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        # As the import statement does when a module is there, which for this one is only now.
        package, _, name = module.__name__.rpartition(".")
        setattr(sys.modules[package], name, module)
        import jail_fetch  # noqa: F401


if "JAIL_FETCH_FD" in os.environ:
    sys.meta_path.insert(0, Late())
