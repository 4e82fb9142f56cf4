"""What the bridge costs: its guards over the pipe, and calls over HTTP. `python -m bench.bridge`."""
