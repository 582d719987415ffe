"""The places in which versions of a registry lie: a folder of a POSIX file system, or an object store."""
