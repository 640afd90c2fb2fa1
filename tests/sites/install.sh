#!/bin/bash
# Tests `make install` and `make uninstall` of a program that is already built, in temporary folders: `make test-install`.
#
#   tests/sites/install.sh BIN
set -euo pipefail

bin=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/script.sh
. "$root/tests/support/script.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-install-XXXXXX")
trap 'rm -rf "$work"' EXIT

# put PREFIX, take PREFIX: the commands of `make install` after the build, and of `make uninstall`.
put() { make -s -C "$root" install-files BIN="$bin" PREFIX="$1" >"$work/said" 2>&1 || fail "install: $(cat "$work/said")"; }
take() { make -s -C "$root" uninstall PREFIX="$1" >"$work/said" 2>&1 || fail "uninstall: $(cat "$work/said")"; }

# left FOLDER: lists its files and folders.
left() { find "$1" -mindepth 1 | sort; }

prefix=$work/home/.local share=$work/home/.local/share
mkdir -p "$share/man/man1"
echo other >"$share/man/man1/other.1"
put "$prefix"
grep -q "export PATH=$prefix/bin:" "$work/said" || fail "no word about PATH: $(cat "$work/said")"
[[ $("$prefix/bin/trireme" --version) == trireme\ * ]] || fail 'the installed program does not start'

# Every command of the help has a man page.
for command in $("$bin" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -vx help); do
    [ -s "$share/man/man1/trireme-$command.1" ] || fail "no page of $command"
done
[ ! -e "$share/man/man1/trireme-manual.1" ] || fail 'a page of a hidden command'
if command -v man >/dev/null; then
    for page in trireme trireme-train trireme-data-convert; do
        text=$(MANWIDTH=100 man --warnings -l "$share/man/man1/$page.1" 2>"$work/warnings") || fail "man -l $page.1"
        [ ! -s "$work/warnings" ] || fail "$page.1: $(cat "$work/warnings")"
        grep -q "${page//-/.}" <<<"$text" || fail "$page.1 reads: $text"
    done
    text=$(MANWIDTH=100 man -l "$share/man/man1/trireme-train.1")
    grep -qE '^ +mpirun -n 4 trireme train recipes/' <<<"$text" || fail "trireme-train.1 stretches its examples: $text"
    grep -qE '^ +trireme train ' <<<"$text" || fail "trireme-train.1 has one example in another: $text"
else
    skip 'install: man pages' 'man on the installed pages: it is not installed'
fi

completion=$share/bash-completion/completions/trireme
bash -n "$completion"
offered=$(bash -c '. "$1"; COMP_WORDS=(trireme train --res) COMP_CWORD=2; _trireme trireme --res train; echo "${COMPREPLY[*]}"' bash "$completion")
[ "$offered" = --resume ] || fail "bash offers \"$offered\" for train --res"
for shell in zsh fish; do
    file=$(find "$share/$shell" -type f)
    [ -s "$file" ] || fail "no completion for $shell"
    if command -v "$shell" >/dev/null; then
        "$shell" -n "$file" || fail "$shell: $file"
    else
        skip "install: completion for $shell" "$shell on its completion: it is not installed"
    fi
done

# The job scripts find the program and the settings in their installed location, and can plan a recipe.
scripts=$share/trireme/jobscripts
[ "$(bash -c '. "$1"; echo "$TRIREME"' bash "$scripts/env.sh")" = "$prefix/bin/trireme" ] || fail 'env.sh names another program'
for file in "$root"/jobscripts/*; do [ -e "$scripts/${file##*/}" ] || fail "no ${file##*/}"; done
for file in "$root"/recipes/*; do cmp "$file" "$share/trireme/recipes/${file##*/}"; done

# An edited env.sh stays, after a second installation and after uninstalling.
echo 'export SBATCH_ACCOUNT=mine' >>"$scripts/env.sh"
echo gone >"$share/trireme/old"
echo share/trireme/old >>"$share/trireme/installed"
put "$prefix"
grep -q 'SBATCH_ACCOUNT=mine' "$scripts/env.sh" || fail 'an edited env.sh was replaced'
cmp "$root/jobscripts/env.sh" "$scripts/env.sh.new"
[ ! -e "$share/trireme/old" ] || fail 'a file of an earlier version is left'
take "$prefix"
grep -q 'kept your' "$work/said" || fail "$(cat "$work/said")"
rm "$scripts/env.sh"
rmdir -p --ignore-fail-on-non-empty "$scripts"
[ "$(left "$share")" = "$(printf '%s\n' "$share/man" "$share/man/man1" "$share/man/man1/other.1")" ] || fail "left: $(left "$share")"
[ ! -e "$prefix/bin" ] || fail 'bin is left'

# DESTDIR: nothing is installed at PREFIX itself, and nothing remains.
export DESTDIR=$work/package
put "$work/usr"
[ -x "$DESTDIR$work/usr/bin/trireme" ] || fail 'nothing below DESTDIR'
[ ! -e "$work/usr" ] || fail 'something outside DESTDIR'
! grep -rqF "$DESTDIR" "$DESTDIR$work/usr/share" || fail 'DESTDIR stands in an installed file'
take "$work/usr"
[ -z "$(left "$DESTDIR$work/usr")" ] || fail "left: $(left "$DESTDIR")"
! make -s -C "$root" uninstall PREFIX="$work/usr" >"$work/said" 2>&1 || fail 'uninstalled what was not there'
unset DESTDIR

# Folders that existed before stay, even if they are empty.
mkdir -p "$work/local/bin" "$work/local/share/man"
before=$(left "$work/local")
put "$work/local"
put "$work/local"
take "$work/local"
[ "$(left "$work/local")" = "$before" ] || fail "left: $(left "$work/local"), expected $before"

# A tilde that the shell did not expand is the home folder. A relative path is refused.
HOME=$work/home make -s -C "$root" install-files BIN="$bin" 'PREFIX=~/tilde' >"$work/said" || fail "$(cat "$work/said")"
[ -x "$work/home/tilde/bin/trireme" ] || fail 'PREFIX=~/tilde'
! make -s -C "$root" install-files BIN="$bin" PREFIX=local >"$work/said" 2>&1 || fail 'a relative PREFIX was taken'
echo 'install: all passed'
