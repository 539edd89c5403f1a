#!/usr/bin/env python3
"""HALYARD_VERBOSE_FILE may name anything, also for a program that runs with more rights than its user's.

    check_verbose_file.py PROGRAM
"""
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop()


def run(program, place, **variables):
    environment = {**os.environ, "HALYARD_VERBOSE": "1", "HALYARD_VERBOSE_FILE": place, **variables}
    result = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60)
    return result.stdout + result.stderr


def other_group():
    """A group that this process may give a file to, other than its own; None if there is none."""
    groups = [65534] if os.geteuid() == 0 else os.getgroups()
    return next((group for group in groups if group != os.getegid()), None)


class VerboseFile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.place = os.path.join(self.folder, "lines")

    def refused(self, place):
        said = run(PROGRAM, place)
        self.assertIn(f"HALYARD_VERBOSE_FILE is '{place}' and ignored", said)
        self.assertIn("halyard_verbose,info", said)  # on stderr instead

    def test_a_file_is_made_and_appended_to(self):
        for _ in range(2):
            self.assertNotIn("halyard_verbose", run(PROGRAM, self.place))
        with open(self.place) as lines:
            self.assertEqual(lines.read().count("halyard_verbose,info"), 2)

    def test_a_pipe_is_refused_and_not_waited_for(self):
        os.mkfifo(self.place)
        self.refused(self.place)
        reader = os.open(self.place, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.refused(self.place)

    def test_a_device_is_refused(self):
        self.refused("/dev/null")

    def test_a_program_with_more_rights_looks_at_no_variable(self):
        group = other_group()
        with open("/proc/self/status") as status:
            no_new_rights = "NoNewPrivs:\t1" in status.read()
        if group is None or no_new_rights or os.statvfs(self.folder).f_flag & os.ST_NOSUID:
            self.skipTest("no program can be given more rights here")
        program = os.path.join(self.folder, "program")
        shutil.copy(PROGRAM, program)
        os.chown(program, -1, group)
        os.chmod(program, stat.S_ISGID | 0o755)
        said = run(program, self.place, HALYARD_NUM_THREADS="none", HALYARD_MAX_ISA="none", HALYARD_PRODUCTS="none")
        self.assertFalse(os.path.exists(self.place))
        self.assertNotIn("halyard_verbose", said)
        self.assertNotIn("HALYARD_", said)


unittest.main(argv=sys.argv, verbosity=1)
