#!/bin/sh
# Hands the data of one node of a Galera cluster to another on the same machine. The server runs it on both sides.
while [ $# -gt 0 ]; do
    case "$1" in
        --role) role=$2 ;;
        --address) address=$2 ;;
        --datadir) data=$2 ;;
    esac
    shift
done

if [ "$role" = joiner ]; then
    rm -rf "$data"/*
    echo "ready 127.0.0.1:1/$data"
    until [ -e "$data/handed" ]; do sleep 0.05; done
    cat "$data/handed"
    exit
fi

echo 'flush tables'
until grep -q : "$data/tables_flushed" 2>/dev/null; do sleep 0.05; done
position=$(cat "$data/tables_flushed")
rm "$data/tables_flushed"
target=/${address#*/}
tar cf - -C "$data" --exclude=galera.cache --exclude=grastate.dat --exclude=gvwstate.dat . | tar xf - -C "$target"
echo 'continue'
echo "$position" > "$target/handing"
mv "$target/handing" "$target/handed"
echo "done $position"
