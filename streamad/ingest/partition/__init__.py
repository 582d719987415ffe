"""What intake and assembler keep of one partition: its streams on its clock, its progress, what is wrong in it."""
