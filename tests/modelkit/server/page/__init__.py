"""One browser serves all tests of this folder, as a package: it is closed behind the last of them."""
