"""Record and replay: the client (`cassette`), its file (`tape`), and how requests are recognised (`matching`)."""
