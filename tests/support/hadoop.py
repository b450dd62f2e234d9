"""A script in place of Hadoop's command, which does the same to the files of this machine."""

from __future__ import annotations

from pathlib import Path

HADOOP = """#!/bin/sh
shift
while case "$1" in -D*) true;; *) false;; esac; do shift; done
what=$1; shift
case $what in
  -test) exec test "$@";;
  -put) mkdir -p "$2" && exec cp -r "$1" "$2";;
  -cat) exec cat "$1";;
  -get) exec cp "$1" "$2";;
  -rm|-rmr) exec rm -r "$1";;
  -mkdir) exec mkdir -p "$1";;
  -mv) exec mv "$1" "$2";;
  -ls) for f in "$1"/*; do echo "-rw-r--r-- 1 a b 5 2020-01-01 00:00 $f"; done;;
  -lsr) find "$1" -type d | sed 's/^/drwxr-xr-x 1 a b 5 2020-01-01 00:00 /'
        find "$1" -type f | sort | sed 's/^/-rw-r--r-- 1 a b 5 2020-01-01 00:00 /';;
esac
"""


def hadoop(folder: Path) -> Path:
    """Make a folder with it, as `hadoop_home` is."""
    command = folder / "bin" / "hadoop"
    command.parent.mkdir(parents=True)
    command.write_text(HADOOP)
    command.chmod(0o755)
    return folder
