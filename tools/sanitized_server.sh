#!/usr/bin/env bash
# Stands in for kernelboxd under compute-sanitizer, for suites that take a server's path:
#   SANITIZER_TOOL=racecheck pytest tests/python/test_layers.py --backend cuda --server tools/sanitized_server.sh
# Findings go to $SANITIZER_LOG.<pid> (default /tmp/sanitizer.<pid>) and end the server with status 86.
set -euo pipefail
exec compute-sanitizer --tool "${SANITIZER_TOOL:-memcheck}" --error-exitcode 86 --print-limit 50 \
  --log-file "${SANITIZER_LOG:-/tmp/sanitizer}.%p" "${KERNELBOXD_REAL:?the path of kernelboxd}" "$@"
