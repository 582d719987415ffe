"""``streamad report``: one page about a span of time: alerts, rates, drift, models, feedback."""
