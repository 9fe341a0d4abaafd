"""Fetch one wheel, resuming a partial file.

A connection that ends early is no end of file: what should have come is known from the answer's head. As long
as each attempt brings something, the rest is asked for again.

Usage: fetch.py PACKAGE VERSION DEST

Asks the index that pip is configured for where the wheel lies, and continues DEST.part where an earlier
attempt stopped. The last line of standard output is the finished file's path. Exit codes: 0 fetched, 3 this
way is not possible here (the caller falls back to plain `pip download`), 1 the network failed.
"""

import errno
import hashlib
import html.parser
import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

JSON = "application/vnd.pypi.simple.v1+json"


def index_url():
    for name in ("PIP_INDEX_URL",):
        if os.environ.get(name):
            return os.environ[name]
    got = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True
    )
    if got.returncode == 0 and got.stdout.strip():
        return got.stdout.strip()
    from pip._internal.models.index import PyPI

    return PyPI.simple_url


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.hrefs = []

    def handle_starttag(self, tag, attrs):
        if tag == "a":
            self.hrefs.extend(value for name, value in attrs if name == "href")


def find(page, package, version):
    """(url, sha256) of the wheel on the package's page."""
    wanted = "%s-%s-" % (package.replace("-", "_"), version)
    request = urllib.request.Request(page, headers={"Accept": JSON + ", text/html;q=0.5"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        body = answer.read().decode("utf-8", "replace")
        kind = answer.headers.get_content_type()
    if kind.endswith("json"):
        for item in json.loads(body)["files"]:
            if item["filename"].startswith(wanted) and item["filename"].endswith(".whl"):
                return urllib.parse.urljoin(page, item["url"]), item.get("hashes", {}).get("sha256", "")
        return None
    links = Links()
    links.feed(body)
    for href in links.hrefs:
        url, _, fragment = urllib.parse.urljoin(page, href).partition("#")
        name = urllib.parse.unquote(url.rsplit("/", 1)[-1])
        if name.startswith(wanted) and name.endswith(".whl"):
            return url, fragment[len("sha256="):] if fragment.startswith("sha256=") else ""
    return None


ATTEMPTS = 8


def size_of(part):
    return os.path.getsize(part) if os.path.exists(part) else 0


def fetch_once(url, part):
    """Appends what is missing of the file; raises when less came than was announced."""
    have = size_of(part)
    request = urllib.request.Request(url, headers={"Range": "bytes=%d-" % have} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return
        raise
    with answer:
        # "bytes 500-999/1000"; a server that does not know ranges sends the whole file again.
        continues = answer.status == 206 and answer.headers.get("Content-Range", "").startswith("bytes %d-" % have)
        if have and answer.status == 206 and not continues:
            raise OSError("the server sent another range than the one asked for")
        announced = answer.headers.get("Content-Length")
        got = 0
        with open(part, "ab" if continues else "wb") as out:
            while True:
                piece = answer.read(1 << 18)
                if not piece:
                    break
                out.write(piece)
                got += len(piece)
        if announced is not None and got < int(announced):
            raise OSError("the connection ended after %d of %s bytes" % (got, announced))


def fetch(url, part):
    for attempt in range(ATTEMPTS):
        have = size_of(part)
        try:
            return fetch_once(url, part)
        except Exception as error:
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            if full or attempt + 1 == ATTEMPTS or size_of(part) <= have:
                raise


def main():
    package, version, dest = sys.argv[1:4]
    part = dest + ".part"
    try:
        base = index_url().rstrip("/") + "/"
        found = find(urllib.parse.urljoin(base, package + "/"), package, version)
    except Exception as error:
        print("cannot ask the package index directly: %s" % error, file=sys.stderr)
        return 3
    if found is None:
        return 3
    url, sha256 = found
    try:
        fetch(url, part)
    except Exception as error:
        print("the download broke off: %s" % error, file=sys.stderr)
        return 1
    if sha256:
        digest = hashlib.sha256()
        with open(part, "rb") as whole:
            for piece in iter(lambda: whole.read(1 << 20), b""):
                digest.update(piece)
        if digest.hexdigest() != sha256:
            os.remove(part)
            print("the fetched file does not have the index's checksum; removed", file=sys.stderr)
            return 1
    os.replace(part, dest)
    print(dest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
