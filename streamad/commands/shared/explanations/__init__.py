"""Judged sequences as people are shown them: facts, reasons, readings over the normal band."""
