"""Object storage: an output that nodes share which share no folder.

All other rooms work in folders of their machine. This one carries such a folder to a storage and
back, and sees to it that only one launch at a time writes there.
"""
