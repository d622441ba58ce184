"""Folders on any storage that Spark can write, and the logs of a checkpoint in them."""

from __future__ import annotations

import re
from typing import Any, cast

from pyspark.sql import SparkSession


class Folder:
    """A folder on any storage that Spark can write, through Hadoop's file systems."""

    def __init__(self, spark: SparkSession, path: str):
        self.spark, self.jvm = spark, cast(Any, spark._jvm)
        self.path = self.jvm.org.apache.hadoop.fs.Path(path)
        self._conf = spark.sparkContext._jsc.hadoopConfiguration()
        self.files = self.path.getFileSystem(self._conf)

    def __str__(self) -> str:
        return str(self.path)

    def of(self, name: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(self.path, name)

    def below(self, name: str) -> Folder:
        """The folder with this name in it."""
        return Folder(self.spark, str(self.of(name)))

    def beside(self, suffix: str) -> Folder:
        """The folder next to it, whose name has this suffix."""
        return Folder(self.spark, f"{self.files.makeQualified(self.path)}{suffix}")

    @property
    def scheme(self) -> str:
        """The kind of storage: `file`, `hdfs` and so on."""
        return str(self.files.makeQualified(self.path).toUri().getScheme())

    def exists(self) -> bool:
        return bool(self.files.exists(self.path))

    def has(self, name: str) -> bool:
        return bool(self.files.exists(self.of(name)))

    def names(self) -> list[str]:
        """The names of its entries; none if the folder does not exist."""
        if not self.files.exists(self.path):
            return []
        return [each.getPath().getName() for each in self.files.listStatus(self.path)]

    def make(self) -> None:
        self.files.mkdirs(self.path)

    def remove(self, name: str) -> None:
        self.files.delete(self.of(name), False)

    def remove_all(self) -> None:
        """Remove the folder with all that is in it."""
        self.files.delete(self.path, True)

    def rename(self, to: Folder) -> None:
        """Rename the folder; raises if that fails, as where `to` exists."""
        if not self.files.rename(self.path, to.path):
            raise OSError(f"{self.path} cannot be renamed to {to.path}")

    def move(self, name: str, to: Folder, new_name: str) -> None:
        """Move one entry into another folder, under another name."""
        if not self.files.rename(self.of(name), to.of(new_name)):
            raise OSError(f"{self.of(name)} cannot be moved to {to.of(new_name)}")

    def copy(self, name: str, to: Folder) -> None:
        """Copy one entry, with all that is in it, into another folder."""
        self.jvm.org.apache.hadoop.fs.FileUtil.copy(
            self.files, self.of(name), to.files, to.of(name), False, self._conf
        )

    def read(self, name: str) -> str:
        stream = self.files.open(self.of(name))
        try:
            return str(self.jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        stream = self.files.create(self.of(name), True)
        stream.write(bytearray(text.encode()))
        stream.close()


def log_entries(log: Folder) -> list[tuple[int, str]]:
    """The entries of a log as (number, name), by number. A `.compact` entry of a sink's log replaces all before it."""
    names = [name for name in log.names() if re.fullmatch(r"\d+(\.compact)?", name)]
    return sorted((int(name.partition(".")[0]), name) for name in names)
