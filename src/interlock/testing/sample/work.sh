#!/bin/sh
. ./note.sh
echo scripted
