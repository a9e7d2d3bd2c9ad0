"""Description of groups and changes of their offsets for ``ottla group``."""
