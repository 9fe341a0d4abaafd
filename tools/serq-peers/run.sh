#!/usr/bin/env bash
# M/M/1 at load 0.8 in serq, in a loop written by hand and in three peers, in one go on one machine.
# Peers are installed with pip into a virtual environment under target/.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=target/serq-peers
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check pyserq==0.1.6 simpy==4.1.2 ciw==3.2.7
cargo bench --quiet -p serq-sim --bench speed -- mm1 | tee "$venv/serq.txt"
"$venv/bin/python" tools/serq-peers/peers.py "$venv/serq.txt"
