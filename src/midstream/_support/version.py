"""The version of midstream, in the one place where it stands: a bundle need not carry package metadata."""

VERSION = "0.1.0"
