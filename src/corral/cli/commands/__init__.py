"""Commands of `corral`, one file each."""
