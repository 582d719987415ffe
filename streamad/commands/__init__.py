"""The commands of the streamad command line, one file each."""
