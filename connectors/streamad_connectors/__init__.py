"""Sources and sinks that come with streamad: files, memory and standard output, found by entry point."""
