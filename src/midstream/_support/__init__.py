"""What every other package may use and that knows none of them.

`internal_errors` reports failures of midstream itself, once each, and raises them under test. `sanitize` makes text
from others safe to show. `journals` gives background writers a moment at fork and at exit.
"""
