"""The candidate against the champion."""
