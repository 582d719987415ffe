"""What needs attention now, whatever the clocks of those say who write the outputs."""
