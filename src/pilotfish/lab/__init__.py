"""What plugin authors test their plugins with: `conformance`, suites for pytest, and `fakes`, test doubles."""
