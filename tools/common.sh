# Sourced by the scripts beside it: where the repository is, and how they speak.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

# One line about what is being done.
say() { printf '%s: %s\n' "${0##*/}" "$*"; }

# Says what went wrong and what to do about it, and ends the script.
die() {
  printf '%s: error: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# The hash of the arguments and of standard input, for stamp files.
hash_of() { { printf '%s\n' "$@"; cat; } | sha256sum | cut -c1-16; }
