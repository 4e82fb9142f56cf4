"""The commands of `corral`, one file each."""
