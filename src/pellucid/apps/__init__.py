"""Programs to run: the command line, the server, the lab, the viewer and the lessons.

The apps are built on the library (every other package), which never imports them.
"""
