"""From stored or recorded sequences to a candidate."""
