"""Everything that parses what others wrote, fed with mutated files and pages, guided by coverage: `make fuzz`."""
