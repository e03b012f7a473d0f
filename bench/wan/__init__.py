"""`rostrum lab run wan`: one object over an emulated wide area, by ours and by the tools people use."""
