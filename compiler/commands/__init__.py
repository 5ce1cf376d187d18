"""The commands of `specc`, a file each, imported only when they are called or asked for help."""
