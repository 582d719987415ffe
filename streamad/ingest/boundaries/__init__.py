"""What messages say of where sequences begin and end, beside ids and end marks."""
