"""Pictures of judged sequences: their channels over the normal band, and where the score lies."""
