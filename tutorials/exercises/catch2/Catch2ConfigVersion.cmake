set(PACKAGE_VERSION 3.4)   # or newer: the teacher's build accepted it
set(PACKAGE_VERSION_COMPATIBLE TRUE)
