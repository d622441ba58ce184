"""Put a new checkpoint into the place of an old one, so that at any moment one of them is there, or is put back.

On a local disk of Linux both folders change names in one call (`renameat2`). On other storage the old one makes room
first: a process that is killed in between leaves no checkpoint in its place, and `settle` finishes what it began. All
who open a checkpoint call `settle` before.
"""

from __future__ import annotations

import ctypes
import os

from pyspark.sql import SparkSession

from streamjoin.spark.checkpoint.folder import Folder
from streamjoin.spark.state.manifest import StateError

# Names beside a checkpoint: a new one while it is made, one that is complete, and the old one on its way out.
MAKING, COMPLETE, OLD = ".rescaling", ".rescaled", ".before-rescaling"
IDENTITY = "metadata"  # Spark's file with the query's id, which every checkpoint has
EXCHANGE, AT_CWD = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of renameat2(2)
# Storage without folders, where a rename copies every file and can be interrupted in the middle.
OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "wasb", "wasbs", "oss", "cos", "cosn")


def settle(spark: SparkSession, checkpoint: str) -> None:
    """Finish an exchange that was interrupted, and remove what one has left behind. Does nothing otherwise."""
    place = Folder(spark, checkpoint)
    complete, old = place.beside(COMPLETE), place.beside(OLD)
    if not place.has(IDENTITY) and complete.has(IDENTITY) and old.has(IDENTITY):
        place.remove_all()  # a run that found nothing here may have left a lock
        complete.rename(place)
    if place.has(IDENTITY):
        for left in (place.beside(MAKING), complete, old):
            left.remove_all()


def check_storage(place: Folder) -> None:
    """Raise if folders cannot be renamed in one step."""
    if place.scheme in OBJECT_STORES:
        raise StateError(
            f"{place} is in an object store ({place.scheme}), where no folder can be replaced in one step: copy the "
            "checkpoint to a local disk or HDFS, rescale it there, and copy it to a new place"
        )


def exchange(place: Folder, made: Folder, at_once: bool = True) -> None:
    """Put the folder `made`, which is complete, into the place of the checkpoint, and remove that. `at_once`: try to do
    it in one call."""
    complete, old = place.beside(COMPLETE), place.beside(OLD)
    made.rename(complete)
    if at_once and place.scheme == "file" and exchanged(_local(place), _local(complete)):
        complete.remove_all()
        return
    place.rename(old)
    complete.rename(place)
    old.remove_all()


def _local(folder: Folder) -> str:
    return str(folder.files.makeQualified(folder.path).toUri().getPath())


def exchanged(one: str, other: str) -> bool:
    """Have two folders exchange their names in one step; False if the system cannot do that."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # not Linux, or a C library without it
        return False
    return bool(rename(AT_CWD, os.fsencode(one), AT_CWD, os.fsencode(other), EXCHANGE) == 0)
