"""The fields of a sample: columns, names, ids, times, readings."""
