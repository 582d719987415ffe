"""The study of the NeuTraL AD paper, rerun: ``python -m benchmarks.paper run | report | data | figures``."""
