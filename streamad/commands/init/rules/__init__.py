"""The rules of init, each with its reason in words: times, ids, readings and what is none."""
