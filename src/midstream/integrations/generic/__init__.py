"""Iterators, generators, functions and context managers of any make, each behind a proxy object."""
