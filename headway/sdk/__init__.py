"""What a program that uses Headway imports, by way of `import headway`. Knows the wire and the core,
never the store.
"""
