# Sourced: the files of ours that linters and formatters look at.

# Tracked and new files alike, generated ones left out (git ignores those).
sources_of() { git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do [[ -f "$file" ]] && echo "$file"; done; true; }

cxx_sources() { sources_of '*.h' '*.cc' '*.cu'; }
python_sources() { sources_of '*.py'; }
