"""Files and folders that are on the disk whole or not at all, also after a kill, a full disk or a power failure.

The order is always the same: write under a temporary name, bring the bytes to the disk, take the name, bring the folder to
the disk. The writer holds a lock on temporary files; the system drops it when its owner dies, and the next process that
saves into the same folder next removes it then. Several files that belong together are noted in a file, COMMIT, before the
first of them takes its name; a save that was killed in between is finished by the next process that opens or saves there.

Functions here raise OSError; who calls them knows what the file was for.
"""

from __future__ import annotations

from fluidtool.disk.committing import finish
from fluidtool.disk.leftovers import is_leftover, settle
from fluidtool.disk.writing import make_folder, new_folder, remove_folder, write_files

__all__ = ["finish", "is_leftover", "make_folder", "new_folder", "remove_folder", "settle", "write_files"]
