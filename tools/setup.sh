#!/usr/bin/env bash
# Installs what the build and the tests need: system packages (apt), then Python packages into .venv.
# Safe to run again: what is there already is left alone, and then no root rights are needed.
#
#   KERNELBOX_SKIP_APT=1  leave system packages alone (another system; you have installed them)
#   PYTHON=/path/python3  make .venv with this interpreter (3.10 or newer)
set -euo pipefail
source "$(dirname "$0")/common.sh"
cd "$ROOT"

install_system_packages() {
  local wanted missing=() package as_root=()
  mapfile -t wanted < <(grep -v '^#' tools/apt-packages.txt)
  if [[ -n "${KERNELBOX_SKIP_APT:-}" ]]; then
    say "system packages: left alone (KERNELBOX_SKIP_APT is set)"
    return
  fi
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || die \
    "this system has no apt. Install by hand what tools/apt-packages.txt lists, then run" \
    "KERNELBOX_SKIP_APT=1 make setup"
  for package in "${wanted[@]}"; do
    [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] ||
      missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    say "system packages: all ${#wanted[@]} are there"
    return
  fi
  if ((EUID != 0)); then
    as_root=(sudo)
    command -v sudo >/dev/null && sudo -v || die \
      "packages are missing and sudo is missing or refuses. As root: apt-get update && apt-get install -y ${missing[*]}"
  fi
  say "system packages: installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update </dev/null || die \
    "apt-get update failed (its message is above). Check the network and /etc/apt/sources.list*, then run this again"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null || die \
    "apt-get install failed (its message is above). Try it by hand: apt-get install ${missing[*]}"
}

# An interpreter for .venv: the system's own first, since one put before it in PATH may lack venv.
find_python() {
  local candidate
  for candidate in ${PYTHON:-/usr/bin/python3 python3}; do
    if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  die "no python3 of version 3.10 or newer with venv found. Install one, or name it: PYTHON=/path/python3 make setup"
}

install_python_packages() {
  local python stamp
  python="$(find_python)"
  stamp=".venv/.requirements-$("$python" --version | hash_of "$ROOT" "$(cat tools/requirements.txt)")"
  if [[ -f "$stamp" ]] && .venv/bin/python -c '' 2>/dev/null; then
    say "python packages: .venv is up to date"
    return
  fi
  say "python packages: installing tools/requirements.txt into .venv ($("$python" --version))"
  rm -rf .venv
  "$python" -m venv .venv || die "$python -m venv failed. On Debian and Ubuntu: apt-get install python3-venv"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r tools/requirements.txt || die \
    "pip failed (its message is above). Check that PyPI can be reached (pip config list), then run this again"
  touch "$stamp"
}

install_client() {
  local stamp
  [[ -f clients/python/pyproject.toml ]] || return 0
  stamp=".venv/.client-$(hash_of <clients/python/pyproject.toml)"
  if [[ -f "$stamp" ]]; then
    say "python client: installed"
    return
  fi
  say "python client: installing clients/python into .venv (editable)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -e clients/python || die \
    "installing clients/python failed (pip's message is above)"
  touch "$stamp"
}

install_system_packages
install_python_packages
tools/gen_proto.sh
install_client
